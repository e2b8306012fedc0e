// vulkan_marks.h: what stands around each command in a command buffer for those who look: its timestamps for the trace,
// and its name as a label for RenderDoc, Nsight and validation messages.
//
// Labels are recorded where VK_EXT_debug_utils is switched on (vulkan_instance.h says when). With neither a trace nor
// labels a command costs one look at a flag.
//
// Thread rule: unsafe, the device's lock.

#ifndef HALIDE_VULKAN_MARKS_H
#define HALIDE_VULKAN_MARKS_H

#include "vulkan_submission.h"

namespace halide_vulkan {
namespace {

// One command, from here to the end of the scope. A barrier before it comes before the mark: waiting is not running.
class CommandMark {
public:
    CommandMark(Gpu &gpu, Submissions &s, TraceKind kind, const char *name, uint64_t bytes = 0) : gpu(gpu), s(s) {
        if (__builtin_expect(gpu.marked, 0)) begin(kind, name, bytes);
    }
    ~CommandMark() {
        if (__builtin_expect(gpu.marked, 0)) end();
    }
    CommandMark(const CommandMark &) = delete;
    CommandMark &operator=(const CommandMark &) = delete;

private:
    Gpu &gpu;
    Submissions &s;

    HALIDE_VULKAN_COLD void begin(TraceKind kind, const char *name, uint64_t bytes) {
        if (gpu.abilities.debug_utils && gpu.vk.vkCmdBeginDebugUtilsLabelEXT) {
            VkDebugUtilsLabelEXT label = {};
            label.sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_LABEL_EXT;
            label.pLabelName = name;
            gpu.vk.vkCmdBeginDebugUtilsLabelEXT(s.commands(), &label);
        }
        if (s.timeline.on) s.timeline.begin_command(gpu, s.commands(), s.open_epoch(), kind, name, bytes);
    }
    HALIDE_VULKAN_COLD void end() {
        if (s.timeline.on) s.timeline.end_command(gpu, s.commands(), s.open_epoch());
        if (gpu.abilities.debug_utils && gpu.vk.vkCmdEndDebugUtilsLabelEXT)
            gpu.vk.vkCmdEndDebugUtilsLabelEXT(s.commands());
    }
};

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_MARKS_H
