"""What a report is written as: a page of HTML, Markdown."""
