"""AMD's rocprof (v1) and rocprofv3: commands to run, and the files that they leave."""
