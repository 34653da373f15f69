"""The history of runs: what a folder of runs holds, case by case."""
