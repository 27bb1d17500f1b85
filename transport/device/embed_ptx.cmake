# cmake -DPTX=file.ptx -DINTO=file.cpp -P embed_ptx.cmake: the text as a constant of ours; an empty one without PTX.
set(text "")
if(PTX)
  file(READ ${PTX} text)
endif()
file(WRITE ${INTO} "#include \"transport/device/cuda_compute.h\"

namespace ciuic::device::cuda {
const std::string_view kernels_ptx = R\"ptx(${text})ptx\";
}  // namespace ciuic::device::cuda
")
