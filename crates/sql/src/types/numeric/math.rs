//! Roots, powers, exponentials and logarithms of numerics.
