"""Explanation: describes, in words and as a picture, what a topology is and how it will run."""

from txtopo.explanation.explanation import Explanation
from txtopo.explanation.parts import CarrierChoice

__all__ = ["CarrierChoice", "Explanation"]
