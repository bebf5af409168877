"""All drawing: figures of runs, scans, kernels and data samples. Only commands, reports and the API import it."""
