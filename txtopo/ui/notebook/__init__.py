"""What a notebook shows of runs, progresses and states."""
