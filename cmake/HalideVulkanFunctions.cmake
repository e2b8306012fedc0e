# What a Halide user's own CMake project calls. Comes with the package (find_package(HalideVulkan)) and with the source
# tree (add_subdirectory, FetchContent); both define the target HalideVulkan::HalideVulkan, libHalideVulkan.so.
#
#   halide_vulkan_jit(TARGET)
#       A program that compiles with Halide at run time, a generator's executable too, runs on our Vulkan runtime.
#
#   add_halide_vulkan_runtime(NAME TARGETS T...)
#       A library NAME with Halide's runtime for these targets, the Vulkan part ours, to be named in
#       add_halide_library(... USE_RUNTIME NAME). Programs that are made of the two need no libHalideVulkan.so; they
#       find halide_vulkan_stats.h.
#       At least one T must have the feature vulkan. Features of the libraries that use it are added, as
#       add_halide_runtime does. find_package(Halide) comes first.
#
# Errors: everything that can be seen while configuring stops there; a runtime that turns out not to be ours stops the
# build (HalideVulkanCheckRuntime.cmake).

set(HALIDE_VULKAN_CHECK_RUNTIME "${CMAKE_CURRENT_LIST_DIR}/HalideVulkanCheckRuntime.cmake")

# libHalide looks its runtime up through the dynamic symbol table, so our library must come before it in the list of
# what the program needs, and stay there although the program calls nothing in it. Neither the order of
# target_link_libraries nor a linker's --as-needed may change that. Link options stand in front of all libraries, and
# push-state confines --no-as-needed to ours (GNU ld, gold, lld and mold all know both).
#
# The library is named a second time as an ordinary one, for the order of the build and the run path; the linker knows
# by then that it is needed. Both are set as properties, because target_link_libraries refuses to mix its two styles and
# which of them the caller uses is the caller's choice.
function (halide_vulkan_jit target)
    if (NOT TARGET "${target}")
        message(FATAL_ERROR "halide_vulkan_jit: there is no target '${target}'")
    endif ()
    if (WIN32 OR APPLE)
        message(FATAL_ERROR "halide_vulkan_jit: works where programs are ELF files, not on ${CMAKE_SYSTEM_NAME}")
    endif ()
    set(ours HalideVulkan::HalideVulkan)
    set(first "LINKER:--push-state,--no-as-needed,$<TARGET_FILE:${ours}>,--pop-state")
    get_target_property(type "${target}" TYPE)
    if (type MATCHES "^(EXECUTABLE|SHARED_LIBRARY|MODULE_LIBRARY)$")
        set_property(TARGET "${target}" APPEND PROPERTY LINK_LIBRARIES ${ours})
        set_property(TARGET "${target}" APPEND PROPERTY LINK_OPTIONS "${first}")
    else ()  # what has no link of its own passes both on to the programs that use it
        set_property(TARGET "${target}" APPEND PROPERTY INTERFACE_LINK_LIBRARIES ${ours})
        set_property(TARGET "${target}" APPEND PROPERTY INTERFACE_LINK_OPTIONS "${first}")
    endif ()
endfunction ()

# Halide's add_halide_runtime runs a program of the Halide package, gengen, which is linked with libHalide and not with
# us, so ours must be put in front of it when it runs. The list of targets is read when the build files are written, not
# now: libraries that use the runtime later add theirs to the property Halide_RT_TARGETS.
function (add_halide_vulkan_runtime name)
    cmake_parse_arguments(PARSE_ARGV 1 RT "" "" "TARGETS")
    if (RT_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "add_halide_vulkan_runtime: unknown arguments: ${RT_UNPARSED_ARGUMENTS}")
    endif ()
    if (NOT RT_TARGETS MATCHES "-vulkan(-|;|$)")
        message(FATAL_ERROR "add_halide_vulkan_runtime: none of TARGETS '${RT_TARGETS}' has the feature vulkan")
    endif ()
    if (NOT TARGET Halide::GenRT)
        message(FATAL_ERROR "add_halide_vulkan_runtime: call find_package(Halide REQUIRED) first")
    endif ()
    if (Halide_CMAKE_TARGET MATCHES ";")
        message(FATAL_ERROR "add_halide_vulkan_runtime: one architecture at a time, not '${Halide_CMAKE_TARGET}'")
    endif ()
    set(ours HalideVulkan::HalideVulkan)
    get_target_property(installed ${ours} IMPORTED)
    if (CMAKE_CROSSCOMPILING AND NOT installed)
        message(
            FATAL_ERROR
            "add_halide_vulkan_runtime: when cross-compiling, gengen runs on this machine and needs a "
            "libHalideVulkan.so for it: install HalideVulkan with this machine's compiler and use "
            "find_package(HalideVulkan)"
        )
    endif ()

    set(extension ".a")
    if (RT_TARGETS MATCHES "-windows(-|;|$)")
        set(extension ".lib")
    endif ()
    set(archive "${CMAKE_CURRENT_BINARY_DIR}/${name}${extension}")

    # As add_halide_runtime: features that say nothing about a runtime go, "cmake" means what is compiled for.
    set(targets "$<TARGET_GENEX_EVAL:${name},$<TARGET_PROPERTY:${name},Halide_RT_TARGETS>>")
    set(dropped "-(user_context|no_asserts|no_bounds_query|no_runtime|profile)")
    set(targets "$<LIST:TRANSFORM,${targets},REPLACE,${dropped},>")
    set(targets "$<LIST:TRANSFORM,${targets},REPLACE,^cmake,${Halide_CMAKE_TARGET}>")
    add_custom_command(
        OUTPUT "${archive}"
        COMMAND
            "${CMAKE_COMMAND}" -E env --modify "LD_PRELOAD=path_list_prepend:$<TARGET_FILE:${ours}>" --
            $<TARGET_FILE:Halide::GenRT> -r "${name}" -o "${CMAKE_CURRENT_BINARY_DIR}" -e static_library
            "target=$<JOIN:$<REMOVE_DUPLICATES:${targets}>,$<COMMA>>"
        COMMAND "${CMAKE_COMMAND}" "-DARCHIVE=${archive}" -P "${HALIDE_VULKAN_CHECK_RUNTIME}"
        DEPENDS ${ours} Halide::GenRT "${HALIDE_VULKAN_CHECK_RUNTIME}"
        COMMENT "Halide's runtime with our Vulkan part: ${name}"
        VERBATIM
    )
    add_custom_target("${name}.update" DEPENDS "${archive}")
    add_library("${name}" STATIC IMPORTED GLOBAL)
    add_dependencies("${name}" "${name}.update")
    find_package(Threads REQUIRED)
    set_target_properties(
        "${name}"
        PROPERTIES
            IMPORTED_LOCATION "${archive}"
            Halide_RT_TARGETS "${RT_TARGETS}"
            INTERFACE_LINK_LIBRARIES "Halide::Runtime;Threads::Threads;${CMAKE_DL_LIBS}"
            INTERFACE_INCLUDE_DIRECTORIES "$<TARGET_PROPERTY:${ours},INTERFACE_INCLUDE_DIRECTORIES>"
    )
endfunction ()
