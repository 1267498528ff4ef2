"""Sources: spouts that read files, tables, queries, queues and Python Data Sources."""
