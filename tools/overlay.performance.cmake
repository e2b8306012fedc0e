
# The benchmarks of the Vulkan runtime laid over this tree by halide-vulkan, for any GPU target. performance_async_gpu
# is then made of ours, which compares every pixel; run without --quick, both measure.
if (Halide_TARGET MATCHES "vulkan")
    tests(GROUPS performance USE_EXIT_CODE_ONLY SOURCES gpu_dispatch_overhead.cpp ARGS --quick)
    target_link_libraries(performance_gpu_dispatch_overhead PRIVATE ${CMAKE_DL_LIBS})
    set_target_properties(performance_gpu_dispatch_overhead PROPERTIES ENABLE_EXPORTS ON)

    set_target_properties(performance_async_gpu PROPERTIES SOURCES vulkan_async_gpu.cpp ENABLE_EXPORTS ON)
    target_link_libraries(performance_async_gpu PRIVATE ${CMAKE_DL_LIBS})
    set_tests_properties(performance_async_gpu PROPERTIES PASS_REGULAR_EXPRESSION "all results right")
endif ()
