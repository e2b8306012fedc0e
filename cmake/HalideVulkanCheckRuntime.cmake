# cmake -DARCHIVE=file -P HalideVulkanCheckRuntime.cmake: is the Vulkan part of this runtime archive ours?
#
# A gengen with libHalide linked into it statically reads no symbol of ours and would make the stock runtime in silence.
# Only our runtime has a function of this name; the name stands in the symbol table of every object format.

file(STRINGS "${ARCHIVE}" found REGEX "halide_vulkan_get_stats" LIMIT_COUNT 1)
if (NOT found)
    file(REMOVE "${ARCHIVE}")
    message(
        FATAL_ERROR
        "The Vulkan runtime in ${ARCHIVE} would be Halide's own: libHalideVulkan.so was put in front of gengen and had "
        "no effect. Is gengen linked with a shared libHalide?"
    )
endif ()
