"""Reading and writing files: images, NIfTI and .npy volumes, label maps, archives."""
