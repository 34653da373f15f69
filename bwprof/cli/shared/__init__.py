"""What several commands share: arguments, exit codes and closed streams, runs that measure, the printed summary."""
