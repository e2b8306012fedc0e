// An ahead-of-time pipeline and its runtime in a library of their own, as a plug-in has them.
//
// Programs open it with dlopen (gpu_aot_unload.cpp, ../gpu_runtimes.cpp) and find its functions by name. It is
// compiled with -fno-gnu-unique: otherwise the inline variables of the C++ headers would keep it loaded for good.

#include "HalideBuffer.h"
#include "double_and_add.h"

#include <memory>

using Halide::Runtime::Buffer;

namespace {

constexpr int kInFlight = 50000;
std::unique_ptr<Buffer<int32_t, 1>> in_flight[2];

}  // namespace

// 0 when n elements are computed and every one is right; an error code of Halide's, or 1 for a wrong element.
extern "C" __attribute__((visibility("default"))) int hv_library_use_with(void *user_context, int n, int salt) {
    Buffer<int32_t, 1> in(n), out(n);
    in.for_each_element([&](int x) { in(x) = x * 3 - salt; });
    in.set_host_dirty();
    if (int code = double_and_add(user_context, in, salt, out)) return code;
    if (int code = out.copy_to_host(user_context)) return code;
    for (int x = 0; x < n; x++) {
        if (out(x) != (x * 3 - salt) * 2 + salt) return 1;
    }
    if (int code = in.device_free(user_context)) return code;
    return out.device_free(user_context);
}
extern "C" __attribute__((visibility("default"))) int hv_library_use(int n, int salt) {
    return hv_library_use_with(nullptr, n, salt);
}

// Launches that nobody waits for, on buffers that live until the library's own destructors end them.
extern "C" __attribute__((visibility("default"))) int hv_library_leave_in_flight() {
    for (auto &buffer : in_flight) buffer.reset(new Buffer<int32_t, 1>(kInFlight));
    in_flight[0]->fill(3);
    in_flight[0]->set_host_dirty();
    for (int i = 0; i < 30; i++) {
        if (int code = double_and_add(nullptr, *in_flight[0], i, *in_flight[1])) return code;
    }
    return 0;
}
