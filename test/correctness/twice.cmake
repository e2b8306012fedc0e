# Every run of a correctness test twice more: `poison.TEST`, with HL_VK_POISON, where memory that was never written does
# not happen to be zeros, and `no_asserts.TEST`, with pipelines that check nothing themselves, so that what is wrong
# reaches the runtime. They belong to `make nightly`, but for a few in `make test`.

set(HV_POISON_IN_TEST correctness_gpu_crops correctness_gpu_copies.staged correctness_gpu_threads)
set(HV_NO_ASSERTS_IN_TEST correctness_gpu_async_order correctness_gpu_dynamic_workgroup correctness_gpu_threads)

# Tests that cannot hold there, as GoogleTest's patterns. With HL_VK_POISON: those that count commands, since to fill new
# memory is one, which also has the GPU use it.
set(HV_POISON_EXCEPT_gpu_busy_uploads "*.LargeUploadsToUnifiedMemory")
set(HV_POISON_EXCEPT_gpu_calls_per_operation "*.MallocAndFree*:*.LaunchIndependent:*.FourDependentKernels")
set(HV_POISON_EXCEPT_gpu_device_release_idle "*.TheFirstCommandNeedsNoBarrier")
set(HV_POISON_EXCEPT_gpu_profile "*")
set(HV_POISON_EXCEPT_gpu_quiet_caller "*.OneLaunch")
set(HV_POISON_EXCEPT_gpu_stats "*.CountedByHand:*.TheFlusher")
set(HV_POISON_EXCEPT_gpu_steady_state "*.MallocAndFreeCallNothing")
# With no_asserts: those that look for the error code of a pipeline. Without checks it goes on after a refusal, to calls
# that are refused in their turn, and returns 0; only the messages tell. "*": none of the program's tests can hold.
set(HV_NO_ASSERTS_EXCEPT_gpu_bad_environment "*")
set(HV_NO_ASSERTS_EXCEPT_gpu_device_release_idle "*.LiveBuffersMayNotBeUsedAfterwards")
set(HV_NO_ASSERTS_EXCEPT_gpu_errors "*.SharedMemoryOverTheLimit:*.TooManyThreads*:*.BufferOfAnotherDeviceApi")
set(HV_NO_ASSERTS_EXCEPT_gpu_exit "*Lost*")
set(HV_NO_ASSERTS_EXCEPT_gpu_processes "GpuProcesses.*")
set(HV_NO_ASSERTS_EXCEPT_gpu_refused_calls "*")
set(HV_NO_ASSERTS_EXCEPT_gpu_small_devices "*.AKernelBeyondTheDeviceIsRefusedByName")

# hv_add_second_runs(TEST NAME FILTER F TIMEOUT S [ENVIRONMENT E...])
function (hv_add_second_runs test name)
    cmake_parse_arguments(RUN "" "FILTER;TIMEOUT" "ENVIRONMENT" ${ARGN})
    set(kinds poison no_asserts)
    math(EXPR RUN_TIMEOUT "${RUN_TIMEOUT} * 4")  # filling takes time
    if ("${RUN_ENVIRONMENT}" MATCHES "HL_VK_(POISON|ZERO_FILL)=")
        list(REMOVE_ITEM kinds poison)
    endif ()
    foreach (kind IN LISTS kinds)
        string(TOUPPER ${kind} upper)
        if (HV_${upper}_EXCEPT_${name} STREQUAL "*" OR (test MATCHES "Lost" AND kind STREQUAL "no_asserts"))
            continue()
        endif ()
        set(filter "${RUN_FILTER}")
        if (HV_${upper}_EXCEPT_${name})
            if (filter MATCHES "-")
                string(APPEND filter ":${HV_${upper}_EXCEPT_${name}}")
            else ()
                string(APPEND filter "-${HV_${upper}_EXCEPT_${name}}")
            endif ()
        endif ()
        set(setting "HL_VK_POISON=205")
        if (kind STREQUAL "no_asserts")
            set(setting "HV_TEST_FEATURES=no_asserts")
        endif ()
        set(nightly NIGHTLY)
        if (test IN_LIST HV_${upper}_IN_TEST)
            set(nightly "")
        endif ()
        hv_add_halide_run(
            ${kind}.${test} correctness_${name} ${nightly}
            ARGUMENTS "--gtest_filter=${filter}"
            ENVIRONMENT ${RUN_ENVIRONMENT} "${setting}"
            TIMEOUT ${RUN_TIMEOUT}
        )
    endforeach ()
endfunction ()
