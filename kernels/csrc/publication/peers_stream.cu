// A streamed NVFP4 projection whose epilogue sends its FP32 rows into every rank's inbox, and the publication behind it, which takes
// them as they come: the projection's end and two ways through its memory less than where the publication sends.
#include "peers.cu"

#include "../projection/nvfp4_stream.cu"

// Bytes of workspace for `row_blocks` row blocks on `blocks` blocks; it must be zero before its first use.
EXPORT int64_t ENTRY(workspace_bytes)(int row_blocks, int blocks) { return ENTRY(code)::workspace_of(row_blocks, blocks); }

// weight .. x_stride as of a projection, the rest as `run` of peers.cu. Width is even.
EXPORT int ENTRY(project)(const void* weight, const void* x, void* workspace, const void* residual, const float* scale, void* s,
                          void* y, const uint64_t* inboxes, void* state, void* fault, int row_blocks, int k_units, int x_stride,
                          float global_scale, int blocks, int rank, int size, int rows, int width, int64_t residual_stride, int type, float eps,
                          int64_t limit_ns, void* stream) {
  const ENTRY(mail)::Ends ends = ENTRY(mail)::ends_of(inboxes, state, rank, size);
  ENTRY(code)::Operands made = ENTRY(code)::operands_of(weight, x, nullptr, workspace, rows, width, row_blocks, k_units, x_stride, width, global_scale);
  made.ends = ends;
  const cudaError_t error = ENTRY(code)::launch_stream<ENTRY(code)::kWide>(made, 1, blocks, stream);
  if (error != cudaSuccess) return error;
  const ENTRY(mail)::Operands o{nullptr, residual, scale, s, y, ends, static_cast<volatile int*>(fault),
                                residual_stride, static_cast<uint64_t>(limit_ns), width, eps, true};
  return ENTRY(mail)::run<true>(o, rows, type, stream);
}
