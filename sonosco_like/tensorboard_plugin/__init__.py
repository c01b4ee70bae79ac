"""The Transcripts tab of TensorBoard. It shares no code with training: the two meet in event files.

TensorBoard imports this when it starts, so that nothing here may import torch.
"""
