"""Chat requests: messages to a prompt through the model's template, and which of its channels an answer may open.

Knows roles, tools and the template's knobs; knows neither sampling nor HTTP streams.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runtime.http.errors import bad
from runtime.http.requests import fields
from runtime.http.requests.form import form_grammar, spacing
from runtime.http.requests.grammar import GrammarChecker, ToolOrder, read_tools, tool_grammar
from runtime.text.tokenizer import ChatTemplate, TemplateError

_MARK = "\ue000the answer goes on here\ue000 "  # of a private plane, so that no message holds it
_ROLES = ("system", "developer", "user", "assistant", "tool")


@dataclass(frozen=True)
class ChatOrder:
    """The rendered prompt; `thinking` where it ends inside an open reasoning block, behind which `grammar` begins."""

    prompt: str
    thinking: bool
    grammar: str | None


def read_chat(body: fields.Body, template: ChatTemplate | None, checker: GrammarChecker) -> ChatOrder:
    if template is None:
        raise bad("this model has no chat template; use /v1/completions", "messages")
    messages = _messages(body.get("messages"))
    settings = dict(fields.mapping(body, "chat_template_kwargs") or {})
    if (effort := fields.text(body, "reasoning_effort")) is not None:
        if not template.knows("reasoning_effort"):
            raise bad(
                f"this model's chat template has no reasoning_effort; {effort!r} would say nothing", "reasoning_effort"
            )
        settings.setdefault("reasoning_effort", effort)
    order = read_tools(body)
    tools = list(order.tools) or None
    if fields.boolean(body, "continue_final_message"):
        if fields.boolean(body, "add_generation_prompt"):
            raise bad(
                "continue_final_message leaves no room for add_generation_prompt=true; send one of them",
                "continue_final_message",
            )
        prompt = _continued(template, messages, tools, settings)
    else:
        prompt = _render(template, messages, tools, fields.boolean(body, "add_generation_prompt", True), settings)
    thinking = prompt.rfind("<think>") > prompt.rfind("</think>")
    return ChatOrder(prompt, thinking, _grammar(body, order, checker))


def _grammar(body: fields.Body, order: ToolOrder, checker: GrammarChecker) -> str | None:
    """A forced call goes before a form: its arguments have a schema of their own."""
    form = form_grammar(body)
    if (calls := tool_grammar(order, spacing(body))) is not None:
        return checker.check(calls, "tools")
    return None if form is None else checker.check(*form)


def _continued(
    template: ChatTemplate,
    messages: list[dict[str, Any]],
    tools: list[Mapping[str, Any]] | None,
    settings: dict[str, Any],
) -> str:
    """The prompt up to the end of the last message's text, as transformers cuts it.

    A mark behind the text says where it ends; its space is gone where the template trims, and so is the text's then.
    """
    last = messages[-1]
    if not last["content"]:
        raise bad("continue_final_message needs a last message with text to continue", "continue_final_message")
    marked = [*messages[:-1], {**last, "content": last["content"] + _MARK}]
    whole, found, rest = _render(template, marked, tools, False, settings).rpartition(_MARK.rstrip())
    if not found:
        raise bad("this model's chat template does not show the text of the last message", "continue_final_message")
    return whole if rest.startswith(" ") else whole.rstrip()


def _render(
    template: ChatTemplate,
    messages: list[dict[str, Any]],
    tools: list[Mapping[str, Any]] | None,
    generation_prompt: bool,
    settings: Mapping[str, Any],
) -> str:
    reserved = sorted({"messages", "tools", "add_generation_prompt"} & settings.keys())
    if reserved:
        raise bad(f"chat_template_kwargs may not set {reserved[0]}", "chat_template_kwargs")
    try:
        prompt = template.render(messages, tools, generation_prompt, **settings)
    except TemplateError as error:
        raise bad(str(error), "messages") from error
    fields.require_unicode(prompt, "messages")
    return prompt


def _messages(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not value:
        raise bad("messages must be a non-empty list", "messages")
    return [_message(message, f"messages[{index}]") for index, message in enumerate(value)]


def _message(message: Any, where: str) -> dict[str, Any]:
    if not isinstance(message, dict) or message.get("role") not in _ROLES:
        raise bad(f"{where} must be an object whose role is one of {', '.join(_ROLES)}", "messages")
    role = "system" if message["role"] == "developer" else message["role"]
    return {**message, "role": role, "content": _text_content(message.get("content"), where)}


def _text_content(content: Any, where: str) -> str:
    """A string, or a list of text parts joined; this server reads no other kind of part."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise bad(f"{where}.content must be a string or a list of text parts", "messages")
    pieces = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise bad(f"{where}.content may hold text parts only", "messages")
        pieces.append(part["text"])
    return "".join(pieces)
