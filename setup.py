"""Package definition. Tool settings live in pyproject.toml, tested versions in constraints.txt."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+)"', (HERE / "sonosco_like" / "version.py").read_text())[1]

EXTRAS = {
    "synth": ["espeakng-loader>=0.2.4"],  # brings espeak-ng, which is under the GPL: see NOTICE
    "bpe": ["sentencepiece>=0.2"],
    "normalizers": ["whisper-normalizer>=0.1.12"],
    "remote": ["fsspec>=2024.2", "s3fs>=2024.2"],
    "serve": [
        "av>=12",  # webm and mp4, as browsers record them; libsndfile reads the other formats
        "fastapi>=0.115",
        "httptools>=0.6",
        "prometheus-client>=0.20",
        "python-multipart>=0.0.12",
        "uvicorn>=0.30",
        "websockets>=13",
    ],
    "export": ["onnx>=1.16", "onnxruntime>=1.17", "sherpa-onnx>=1.12"],
    "wandb": ["wandb>=0.17"],
    "mlflow": ["mlflow-skinny>=2.14"],
    "docs": ["mkdocs>=1.6", "mkdocstrings[python]>=0.27"],
    "bench": [
        "flashlight-text>=0.0.7",
        "lhotse>=1.24",
        "lightning>=2.4",
        "psutil>=5.9",
        "pytorch-accelerated>=0.1.49",
        "pytorch-ignite>=0.5",
        "speechbrain>=1.0",
        "threadpoolctl>=3",
        "urllib3",
    ],
    "dev": [
        "flashlight-text>=0.0.7",  # the judge of our CTC beam search
        "flask>=3",
        "flask-cors>=5",
        "hypothesis>=6.100",
        "ipykernel>=6.29",
        "jiwer>=4",
        "jsonschema>=4.21",
        "kaldi-native-fbank>=1.20",
        "moto[s3]>=5",
        "mypy>=1.10",
        "nbclient>=0.10",
        "nbformat>=5.10",
        "openai>=1.60",  # a client that knows the server's API
        "playwright>=1.45",
        "pytest>=8",
        "pytest-timeout>=2.3",
        "pytest-xdist>=3.5",
        "ruff>=0.6",
        "schemathesis>=4",
        "torchmetrics>=1.4",
        "transformers>=5",  # the judge of our pretrained encoders
        "types-PyYAML",
    ],
}

setup(
    name="sonosco_like",
    version=VERSION,
    description="Train speech recognisers from one YAML file, and resume them bit for bit.",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.10",
    package_dir={"": "."},  # so that an editable install is a path, which type checkers and editors follow
    packages=find_packages(include=["sonosco_like", "sonosco_like.*"]),
    package_data={
        "sonosco_like": ["py.typed", "static/*", "tensorboard_plugin/static/*", "server/static/*", "templates/*"]
    },
    install_requires=[
        "click>=8.1",
        "jinja2>=3.1",
        "librosa>=0.10",
        "matplotlib>=3.8",
        "numpy>=1.26",
        "pyarrow>=15",
        "pyyaml>=6",
        "rapidfuzz>=3.6",
        "rich>=13",
        "safetensors>=0.4.3",
        "scipy>=1.10",
        "soundfile>=0.12",
        "soxr>=0.3.7",
        "tensorboard>=2.16",
        "tensorboardX>=2.6",
        "torch>=2.4",
        "torchaudio>=2.4",
        "typing_extensions>=4.9",
    ],
    extras_require=EXTRAS,
    entry_points={
        "console_scripts": ["sonosco = sonosco_like.__main__:main"],
        "tensorboard_plugins": ["sonosco_transcripts = sonosco_like.tensorboard_plugin.plugin:TranscriptsPlugin"],
    },
)
