"""Read what rocprof and rocprofv3 measured."""
