"""The same work by txtopo, a bare Spark loop and Structured Streaming, side by side."""
