"""The tab's home: what the page's worker starts in Pyodide, and what a plain Pyodide console finds there."""
