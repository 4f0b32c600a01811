"""Raw inputs ⇄ tensors: text, chat, images. `Processor` holds what one model has of them."""
