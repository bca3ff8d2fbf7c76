"""The paper's figures and tables, rebuilt from recorded rows: `python -m paper_figures`."""
