# Everything that is not ours, from Debian's packages; tools/packages.txt lists them for installation.
find_package(Threads REQUIRED)
find_package(Boost 1.81 REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(zstd REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(lz4 REQUIRED IMPORTED_TARGET liblz4)
find_package(ZLIB REQUIRED)
find_library(SNAPPY_LIBRARY snappy REQUIRED)
find_library(ISAL_LIBRARY isal REQUIRED)
find_path(ISAL_INCLUDE isa-l/crc.h REQUIRED)
find_package(Python3 COMPONENTS Interpreter REQUIRED)

# Asio and boost::system::result are used header-only.
add_library(ciuic_boost INTERFACE)
target_link_libraries(ciuic_boost INTERFACE Boost::headers Threads::Threads)
target_compile_definitions(ciuic_boost INTERFACE BOOST_ASIO_NO_DEPRECATED)
