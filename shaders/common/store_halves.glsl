// Stores the same bits as store_words.glsl, but 16-bit elements without atomics: for devices with storageBuffer16BitAccess.
#extension GL_EXT_shader_16bit_storage : require
#define STORED uint16_t
#define STORE_ELEMENT(buffer, i, value) buffer[i] = uint16_t(sixteen_bits(value));
