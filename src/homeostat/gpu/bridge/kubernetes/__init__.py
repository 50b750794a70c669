"""Kubernetes: `cluster` follows nodes and pods, `reading` says what they mean, `pods` is what is made of a replica."""

from homeostat.gpu.bridge.kubernetes.cluster import Kubernetes
from homeostat.gpu.bridge.kubernetes.pods import Options

__all__ = ["Kubernetes", "Options"]
