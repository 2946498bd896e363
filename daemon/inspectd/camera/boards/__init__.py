"""The simulated line of circuit boards: what is on picture n (scene, no pixels), and how it is drawn (drawing)."""
