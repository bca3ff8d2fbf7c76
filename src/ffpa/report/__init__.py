"""From recorded rows to verdicts, tables, figures' data, the report page and the README blocks."""
