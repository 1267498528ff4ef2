"""What tests share: servers, processes, sessions, chance."""
