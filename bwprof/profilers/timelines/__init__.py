"""What ran on a GPU and when: PyTorch's traces, Nsight Systems' exports. A row for each kernel's name."""
