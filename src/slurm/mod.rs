//! Slurm's words.
