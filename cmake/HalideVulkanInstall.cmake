# What `cmake --install build --prefix FOLDER` lays down: libHalideVulkan.so, halide_vulkan_stats.h, the CMake package,
# the licence.
#
# The version file is made ARCH_INDEPENDENT: the library is data that a Halide on the building machine reads, so a
# project that compiles for another word size may use it all the same. All parts are in one component, "cmake", so that
# other packages can leave them out.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(HV_PACKAGE_DIRECTORY "${CMAKE_INSTALL_LIBDIR}/cmake/HalideVulkan")
configure_package_config_file(
    "${PROJECT_SOURCE_DIR}/cmake/HalideVulkanConfig.cmake.in" "${PROJECT_BINARY_DIR}/HalideVulkanConfig.cmake"
    INSTALL_DESTINATION "${HV_PACKAGE_DIRECTORY}"
)
write_basic_package_version_file(
    "${PROJECT_BINARY_DIR}/HalideVulkanConfigVersion.cmake"
    COMPATIBILITY SameMinorVersion
    ARCH_INDEPENDENT
)

install(
    TARGETS HalideVulkan
    EXPORT HalideVulkanTargets
    LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
    COMPONENT cmake
)
install(
    EXPORT HalideVulkanTargets
    NAMESPACE HalideVulkan::
    DESTINATION "${HV_PACKAGE_DIRECTORY}"
    COMPONENT cmake
)
install(
    FILES
        "${PROJECT_BINARY_DIR}/HalideVulkanConfig.cmake"
        "${PROJECT_BINARY_DIR}/HalideVulkanConfigVersion.cmake"
        "${PROJECT_SOURCE_DIR}/cmake/HalideVulkanFunctions.cmake"
        "${PROJECT_SOURCE_DIR}/cmake/HalideVulkanCheckRuntime.cmake"
    DESTINATION "${HV_PACKAGE_DIRECTORY}"
    COMPONENT cmake
)
install(FILES "${PROJECT_BINARY_DIR}/include/halide_vulkan_stats.h" DESTINATION include COMPONENT cmake)
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT cmake)
