"""Distillation: train one small student on what a model says about unlabelled text. May import `models` and below.

`distillation` is the way in: it prepares a job (`distil_job`: token numbers, the teacher's vectors, where the student
starts), trains it (`student_training`, which needs torch, numpy and safetensors alone) and saves the student.
"""

from __future__ import annotations
