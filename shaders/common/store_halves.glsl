// 16-bit elements are stored by themselves, with the bits that store_words.glsl stores: for devices that can.
#extension GL_EXT_shader_16bit_storage : require
#define STORED uint16_t
#define STORE_ELEMENT(buffer, i, value) buffer[i] = uint16_t(sixteen_bits(value));
