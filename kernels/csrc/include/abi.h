// The C interface of a native schedule. The build defines SCHEDULE as `<operator>_<schedule>`, so that one source can
// serve several schedules. An entry returns 0, or the error code of the device's runtime.
#pragma once

#define ABI_JOIN_(a, b) a##_##b
#define ABI_JOIN(a, b) ABI_JOIN_(a, b)
#define ENTRY(name) ABI_JOIN(SCHEDULE, name)
#define EXPORT extern "C" __attribute__((visibility("default")))
