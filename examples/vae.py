"""The decoder of a Stable Diffusion VAE, built from a config, with its mid-block by FFPA.

    python examples/vae.py              # on a GPU
    python examples/vae.py --recorded   # the recorded speeds of such blocks, no GPU

The weights are random: what counts is that the image is the same with torch's attention, and which
kernel ran. Needs `pip install ffpa[integrations,report]`.
"""

import argparse

import torch
from diffusers import AutoencoderKL
from recorded import table

import ffpa
from ffpa.integrations.diffusers import use_in

SHAPES = ("vae-64x64", "vae-128x128", "vae-384")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recorded", action="store_true", help="print the recorded speeds only")
    parser.add_argument("--size", type=int, default=128, help="side of the latent image")
    options = parser.parse_args()
    if options.recorded:
        print(table(*SHAPES))
        return
    if not torch.cuda.is_available():
        parser.error("no CUDA device visible: --recorded needs none")
    torch.manual_seed(0)
    vae = AutoencoderKL(
        block_out_channels=(128, 256, 512, 512),
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        layers_per_block=2,
        latent_channels=4,
    )
    vae = vae.half().cuda().eval()
    latents = torch.randn(1, 4, options.size, options.size, device="cuda").half()
    with torch.no_grad():
        expected = vae.decode(latents).sample
        use_in(vae, strict=True)
        image = vae.decode(latents).sample
    difference = (image - expected).abs().max() / expected.abs().max()
    print(f"{ffpa.last_kernel()}: the image differs by at most {difference:.1e} of its range")


if __name__ == "__main__":
    main()
