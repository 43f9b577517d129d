// Asks for the next rendering of what changes. The HTML is the server's own, its texts escaped there.
"use strict";
const panel = document.getElementById("live");
if (panel && panel.dataset.events) {
  const source = new EventSource(panel.dataset.events);
  const note = document.getElementById("connection");
  source.addEventListener("panel", (event) => { panel.innerHTML = JSON.parse(event.data); note.textContent = ""; });
  source.addEventListener("done", () => { source.close(); location.reload(); });
  source.onerror = () => { note.textContent = "The connection is lost; it is tried again."; };
}
// What is under the mouse or the focus, in words beside the plot; without script the title of a mark says it.
for (const plot of document.querySelectorAll(".plot")) {
  const said = plot.parentElement.querySelector(".said");
  const tell = (event) => {
    const mark = event.target.closest("a, [tabindex]");
    const title = mark && mark.querySelector("title");
    if (title && said) said.textContent = title.textContent;
  };
  plot.addEventListener("mouseover", tell);
  plot.addEventListener("focusin", tell);
}
