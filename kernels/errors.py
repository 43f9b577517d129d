"""The tree of errors that this package raises.

KernelError
  UnknownOperator     a name no operator has
  UnknownSchedule     a name no schedule of that operator has
  RankLost            a rank of a tensor-parallel group that was waited for in vain
  ToolkitError        (kernels.native.toolkit) a compiler that is there and does not work
  BuildError          (kernels.native.building) a native library that could not be built
  LibraryError        (kernels.native.library) a native library that must not be loaded
  NativeError         (kernels.native.library) an entry returned something other than 0
"""

from __future__ import annotations


class KernelError(Exception):
    """Root of every error this package raises."""


class UnknownOperator(KernelError):
    pass


class UnknownSchedule(KernelError):
    pass


class RankLost(KernelError):
    pass
