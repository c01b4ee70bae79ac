"""The Transcripts tab of TensorBoard, which reads what callbacks write to event files.

TensorBoard imports this room when it starts, so that nothing here may import torch.
"""
