"""FFPA in the libraries that people use. Each module needs its library, which is not installed."""
