"""Train a steerable segmentation network with PyTorch Lightning; needs `pip install pytorch-lightning`.

Steerable layers are ordinary modules on ordinary tensors, so Trainer, callbacks and precision plugins need nothing new.
"""

import logging

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import steerformer as sf


class Segmenter(pl.LightningModule):
    """A U-Net for images (batch, 1, height, width) and labels (batch, height, width)."""

    def __init__(self, learning_rate: float = 5e-3) -> None:
        super().__init__()
        self.save_hyperparameters()
        config = {"kind": "unet", "group": "SO2", "classes": 2, "degrees": 3, "widths": [[4], [8]], "depth": 0}
        self.net = sf.models.build(config)

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        x, labels = batch
        loss = F.cross_entropy(self.net(x), labels)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.hparams["learning_rate"])


def main() -> None:
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    pl.seed_everything(0, verbose=False)
    x = sf.testing.blobs(sf.FieldType.image(sf.SO2, 1), batch=64, count=3, dtype=torch.float32).sample(24)
    labels = (x[:, 0] > 0.5).long()
    loader = DataLoader(TensorDataset(x, labels), batch_size=8, shuffle=True)
    model = Segmenter()
    files = {"logger": False, "enable_checkpointing": False}
    trainer = pl.Trainer(max_epochs=4, accelerator="cpu", enable_progress_bar=False, **files)
    trainer.fit(model, loader)
    print(f"loss {trainer.callback_metrics['loss']:.3f}")
    model.eval()
    sf.testing.assert_equivariant(model.net, size=24)


if __name__ == "__main__":
    main()
