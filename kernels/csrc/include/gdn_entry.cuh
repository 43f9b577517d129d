// The entry of GDN verification, included at the end of each of its sources: bare pointers become `gdn::Operands`, and the source's
// own `launch_on(operands, workspace, stream)` runs them.
//
// Strides count elements between rows; types: 0 FP16, 1 BF16, 2 FP32, in the order activations, conv_weight, a_log, dt_bias.
#pragma once

EXPORT int ENTRY(run)(const void* qkv, const void* a, const void* b, const void* conv_weight, const void* a_log, const void* dt_bias, void* window,
                      void* pool, const void* slot_table, const void* selector, void* out, void* workspace, const int64_t* strides,
                      const int* types, int rows, int key_heads, int value_heads, int slots, void* stream) {
  const gdn::Operands o{qkv, a, b, conv_weight, a_log, dt_bias, window, out, static_cast<float*>(pool), static_cast<unsigned int*>(workspace),
                        static_cast<const int*>(slot_table), static_cast<const int*>(selector), rows, key_heads, value_heads, slots,
                        strides[0], strides[1], strides[2], types[0], types[1], types[2], types[3]};
  return ENTRY(code)::launch_on(o, workspace, stream);
}
