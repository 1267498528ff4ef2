"""The services of docker/compose.yml, started without Docker."""
