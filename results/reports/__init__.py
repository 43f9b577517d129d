"""One campaign laid out: Markdown, HTML, JSON, CSV, tables and plots of the same summary.

Computes nothing that another format would have to compute again."""
