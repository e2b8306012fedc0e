
# The tests of the Vulkan runtime laid over this tree by halide-vulkan. They choose their target themselves and fail
# where there is no Vulkan, so they are here when Vulkan is what is tested. Those that one run of the program does not do
# (an environment or a process for each case, kernels assembled beforehand, one exact version of Halide) stay there.
if (Halide_TARGET MATCHES "vulkan")
    # Halide's search for LLVM sets which configurations of a library may stand in for another, for all that follows.
    # Debian's GoogleTest, of the configuration None, is none of them.
    block()
        foreach (configuration IN ITEMS MINSIZEREL RELWITHDEBINFO RELEASE)
            unset(CMAKE_MAP_IMPORTED_CONFIG_${configuration})
        endforeach ()
        find_package(GTest REQUIRED)
    endblock ()
    find_package(VulkanHeaders REQUIRED HINTS "${Halide_SOURCE_DIR}/dependencies/vulkan")

    # A Vulkan layer that counts and fails calls, see ../layer/count_layer.h.
    file(GLOB layer_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/../layer/*.cpp")
    add_library(vulkan_count_layer MODULE ${layer_sources})
    target_link_libraries(vulkan_count_layer PRIVATE Vulkan::Headers Threads::Threads)
    target_link_options(vulkan_count_layer PRIVATE LINKER:-z,nodelete)
    set_target_properties(
        vulkan_count_layer
        PROPERTIES
        PREFIX "" OUTPUT_NAME VkLayer_halidevulkan_count LIBRARY_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}"
        CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    )
    set(HV_LAYER_FILE "${CMAKE_CURRENT_BINARY_DIR}/VkLayer_halidevulkan_count.so")
    configure_file(../layer/manifest.json.in "${CMAKE_CURRENT_BINARY_DIR}/VkLayer_halidevulkan_count.json" @ONLY)

    tests(
        GROUPS correctness multithreaded USE_EXIT_CODE_ONLY
        SOURCES
        gpu_arguments.cpp
        gpu_async_order.cpp
        gpu_copies.cpp
        gpu_crops.cpp
        gpu_debug_trace.cpp
        gpu_dynamic_workgroup.cpp
        gpu_errors.cpp
        gpu_group_limits.cpp
        gpu_sizes.cpp
        gpu_threads.cpp
    )
    set(vulkan_tests ${TEST_NAMES})
    tests(
        GROUPS correctness multithreaded USE_EXIT_CODE_ONLY
        SOURCES
        gpu_allocation.cpp
        gpu_busy_uploads.cpp
        gpu_descriptors.cpp
        gpu_device_release_idle.cpp
        gpu_free_while_in_flight.cpp
        gpu_memory_pressure.cpp
        gpu_profile.cpp
        gpu_quiet_caller.cpp
        gpu_refused_calls.cpp
        gpu_small_devices.cpp
        gpu_steady_state.cpp
        gpu_strided_copies.cpp
        gpu_waits.cpp
    )
    set(counted_tests ${TEST_NAMES})
    foreach (test IN LISTS vulkan_tests counted_tests)
        target_link_libraries(${test} PRIVATE GTest::gtest GTest::gtest_main ${CMAKE_DL_LIBS})
        set_target_properties(${test} PROPERTIES ENABLE_EXPORTS ON)
        add_dependencies(${test} vulkan_count_layer)
        set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT "HV_COUNT_LAYER=${HV_LAYER_FILE}")
    endforeach ()
    # These count or fail Vulkan calls: with the layer, and with submissions that do not depend on time. Mesa's own
    # layer for choosing devices does not survive a refused call.
    foreach (test IN LISTS counted_tests)
        set_property(
            TEST ${test} APPEND
            PROPERTY ENVIRONMENT "VK_LAYER_PATH=${CMAKE_CURRENT_BINARY_DIR}" "HL_VK_LAYERS=VK_LAYER_HALIDEVULKAN_count"
            "NODEVICE_SELECT=1"
        )
    endforeach ()
    foreach (test IN ITEMS correctness_gpu_busy_uploads correctness_gpu_steady_state)
        set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT "HL_VK_FLUSH=count")
    endforeach ()
endif ()
