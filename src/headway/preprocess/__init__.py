"""One raw thing ⇄ tensors. Text, chat, image, audio; one file each."""
