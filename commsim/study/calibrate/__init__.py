"""
A cluster as it was measured: what is broken, a few factors fitted, and checks against new logs.

In: nccl-tests logs and the cluster that they should be of. Out: a `Calibration`, whose cluster file
every command takes, and a `CheckResult`. `predicted` times a log's table on a cluster, `faults` are
what commonly breaks, `factors` what is fitted, `fit` fits it; `training` does so by recorded steps.
"""

from commsim.study.calibrate.calibrate import (
    Calibration,
    calibrate,
    fitted_to,
    joined,
    save_cluster,
)
from commsim.study.calibrate.check import CheckResult, check
from commsim.study.calibrate.fit import NEAR, ErrorParts, errors_of, log_ratios
from commsim.study.calibrate.predicted import BenchedMachine, MeasuredTable
from commsim.study.calibrate.training import PacedStep, SlowRank, StepCalibration, calibrate_steps

__all__ = [
    "NEAR",
    "BenchedMachine",
    "Calibration",
    "CheckResult",
    "ErrorParts",
    "MeasuredTable",
    "PacedStep",
    "SlowRank",
    "StepCalibration",
    "calibrate",
    "calibrate_steps",
    "check",
    "errors_of",
    "fitted_to",
    "joined",
    "log_ratios",
    "save_cluster",
]
