"""Which fields of a request this server honours, which it refuses, and which it may leave unread.

A field that would change the answer is honoured or refused, never dropped. The names are those of OpenAI's and vLLM's
requests, and of the samplers that other servers offer. A name that nobody here knows is left out and reported back.
"""

from __future__ import annotations

from typing import Any

from runtime.http.errors import ApiError
from runtime.http.requests import fields

_GENERATION = frozenset({
    "model", "max_tokens", "temperature", "top_k", "top_p", "min_p", "seed", "stop", "stop_token_ids", "ignore_eos",
    "min_tokens", "stream", "stream_options", "return_token_ids", "return_round_details", "profile",
    "return_tokens_as_token_ids", "logprobs", "logprobs_mode", "allowed_token_ids", "bad_words",
    "truncate_prompt_tokens", "add_special_tokens", "skip_special_tokens", "include_stop_str_in_output",
    "response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar",
    "speculation", "num_speculative_tokens", "guided_json_object", "guided_whitespace_pattern",
    "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias",
})  # fmt: skip
PLAIN = frozenset({"prompt"})
CHAT = frozenset({
    "messages", "max_completion_tokens", "top_logprobs", "tools", "tool_choice", "parallel_tool_calls",
    "chat_template_kwargs", "add_generation_prompt", "continue_final_message", "reasoning_effort",
})  # fmt: skip
# They concern billing, storage, caching or transport, never the words of the answer.
_WITHOUT_EFFECT = frozenset({
    "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_options",
    "prompt_cache_retention", "prediction", "request_id", "session_id", "cache_salt", "guided_decoding_backend",
    "return_token_offsets", "return_mm_kwargs",
})  # fmt: skip
# What this server cannot do, with the values that ask for nothing.
_REFUSED: dict[str, tuple[Any, ...]] = {
    # OpenAI
    "n": (1,), "best_of": (1,), "echo": (False,), "suffix": ("",), "functions": ([],), "function_call": ("none",),
    "audio": (), "modalities": (["text"],), "verbosity": ("medium",), "web_search_options": (), "moderation": (),
    # vLLM
    "use_beam_search": (False,), "length_penalty": (1,), "prompt_logprobs": (), "watermarking": (False,),
    "spaces_between_special_tokens": (True,), "documents": ([],), "chat_template": (), "media_io_kwargs": ({},),
    "mm_processor_kwargs": ({},), "structural_tag": (), "logits_processors": ([],), "thinking_token_budget": (-1,),
    "include_reasoning": (True,), "prompt_embeds": (), "priority": (0,), "kv_transfer_params": ({},),
    "ec_transfer_params": ({},), "vllm_xargs": ({},), "repetition_detection": (), "truncation_side": ("left",),
    "data_parallel_rank": (), "logprob_token_ids": ([],), "routed_experts_prompt_start": (0,), "stream_interval": (1,),
    "return_prompt_text": (False,),
    # Samplers and constraints of other servers (SGLang, TGI, llama.cpp, Ollama, OpenRouter, Mistral, transformers)
    "typical_p": (1,), "top_a": (0,), "tfs": (1,), "tfs_z": (1,), "eta_cutoff": (0,), "epsilon_cutoff": (0,),
    "mirostat": (0,), "mirostat_mode": (0,), "mirostat_tau": (), "mirostat_eta": (), "xtc_probability": (0,),
    "xtc_threshold": (), "dry_multiplier": (0,), "dynatemp_range": (0,), "smoothing_factor": (0,),
    "top_n_sigma": (-1,), "no_repeat_ngram_size": (0,), "encoder_repetition_penalty": (1,), "repeat_penalty": (1,),
    "penalty_alpha": (0,), "num_beams": (1,), "do_sample": (), "watermark": (False,), "max_new_tokens": (),
    "min_new_tokens": (0,), "n_predict": (), "num_predict": (), "max_length": (), "max_output_tokens": (),
    "random_seed": (), "stop_sequences": ([],), "grammar": (), "regex": (), "ebnf": (), "json_schema": (),
    "custom_logit_processor": (), "lora_path": (), "no_stop_trim": (False,), "stop_regex": ([],),
    "sampling_params": ({},), "enable_thinking": (), "thinking": (), "reasoning": (), "extra_body": ({},),
}  # fmt: skip
# What to send instead, where this server has it under another name.
_INSTEAD = {
    "max_new_tokens": "max_tokens", "n_predict": "max_tokens", "num_predict": "max_tokens", "max_length": "max_tokens",
    "max_output_tokens": "max_tokens", "min_new_tokens": "min_tokens", "random_seed": "seed",
    "stop_sequences": "stop", "repeat_penalty": "repetition_penalty", "grammar": "structured_outputs",
    "ebnf": "structured_outputs", "regex": "structured_outputs", "json_schema": "response_format",
    "enable_thinking": 'chat_template_kwargs: {"enable_thinking": …}', "do_sample": "temperature",
    "prompt_logprobs": "logprobs, which are of the answer's tokens", "structural_tag": "tools or response_format",
    "extra_body": "its fields at the top level",
}  # fmt: skip


def check(body: fields.Body, dialect: frozenset[str]) -> tuple[str, ...]:
    """The names in `body` that are unknown and ignored; `dialect` is PLAIN or CHAT. Raises ApiError."""
    for name in body.keys() & _REFUSED.keys():
        fields.refuse_unless(body, name, _REFUSED[name], _INSTEAD.get(name))
    other, route = (CHAT, "/v1/chat/completions") if dialect is PLAIN else (PLAIN, "/v1/completions")
    for name in sorted(body.keys() & other):
        if body[name]:
            raise ApiError(400, f"{name} belongs to {route}", name, "unsupported_parameter")
    known = _GENERATION | dialect | other | _WITHOUT_EFFECT | _REFUSED.keys()
    return tuple(sorted(body.keys() - known))
