"""Networks for classification, built from configurations."""
