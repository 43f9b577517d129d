"""The tables of a report as headers and rows of text, and how their figures are printed.

Markdown, HTML, JSON and CSV lay out the same ones; knows no layout and no store."""
