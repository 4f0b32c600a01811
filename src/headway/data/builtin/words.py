"""Names and nouns for the generated texts.

Some names are both people, places or months (Jordan, Florence, April), so that a model must use the context.
"""
# ruff: noqa: SIM905 - a list of words reads best as words

FIRST_NAMES = (
    "Ada Alan Amara Anders April Austin Beatriz Boris Carmen Chen Chloe Clara Daniel Dara Diego Elena Elif Emma Erik "
    "Farah Felix Florence Georgia Grace Hana Hugo Ida Igor Ines Ivan Jana Jonas Jordan June Kaito Karim Lara Leila "
    "Liam Luca Maja Marco Maria May Mei Milan Mina Nadia Nils Noor Olga Omar Pavel Petra Priya Rafael Rosa Ruth Samir "
    "Sofia Sven Tara Tomas Vera Victor Victoria Wanda Yara Yusuf Zoe"
).split()
LAST_NAMES = (
    "Adeyemi Almeida Andersen Baker Berg Bianchi Brown Castillo Cohen Costa Dubois Eriksen Fischer Fontaine Garcia "
    "Gruber Haddad Hansen Horvat Ivanova Jansen Johnson Kaya Keller Kimura Kowalski Larsen Lee Lima Lopez Martin Meyer "
    "Moreau Mueller Nakamura Novak Okafor Olsen Ortiz Park Patel Petrov Popescu Rahman Reyes Rossi Santos Schmidt "
    "Silva Singh Smith Sokolov Suzuki Tanaka Torres Varga Virtanen Weber Wilson Wong York Zhang"
).split()
PLACES = (
    "Accra Amsterdam Ankara Athens Austin Bangkok Belgrade Bergen Berlin Bogota Boston Bremen Bristol Brussels "
    "Budapest Cairo Chicago Dakar Denver Dublin Florence Geneva Georgia Ghent Hanoi Havana Helsinki Houston Jordan "
    "Kampala Kyoto Lagos Leeds Lima Lisbon London Lyon Madrid Malmo Manila Milan Mumbai Munich Nairobi Naples Oslo "
    "Paris Porto Prague Quito Riga Rome Seoul Seville Sofia Sydney Tallinn Tokyo Toronto Turin Utrecht Valencia "
    "Victoria Vienna Vilnius Warsaw York Zagreb Zurich"
).split()
TWO_WORD_PLACES = ["New York", "Cape Town", "Hong Kong", "San Jose", "Buenos Aires", "Tel Aviv", "Porto Alegre"]
JOBS = (
    "architect baker biologist carpenter chemist cook dentist driver editor electrician engineer farmer gardener "
    "geologist journalist judge librarian mechanic midwife musician nurse painter pilot plumber potter printer sailor "
    "surgeon tailor teacher translator vet watchmaker weaver"
).split()
HOBBIES = (
    "archery astronomy baking chess climbing cycling dancing diving fencing fishing gardening hiking juggling kayaking "
    "knitting origami painting photography poetry pottery rowing running sailing singing skating skiing surfing yoga"
).split()
ANIMALS = "cat dog parrot rabbit tortoise hamster goldfish pony goat canary ferret gecko".split()
THINGS = (
    "lamps chairs tables ladders buckets kettles candles mirrors blankets clocks hammers ropes baskets bottles drums "
    "brushes cups plates spoons boxes bells maps tents radios pumps shovels carpets pillows vases jars"
).split()
COMPANIES = (
    "Northwind Bluefin Silverline Oakridge Redstone Brightwater Ironbridge Greenfield Starling Larkspur Kestrel "
    "Harbour Summit Meridian Lanternworks Foxglove Juniper Quarry"
).split()
CLUBS = "Rovers Albion United Wanderers Athletic Rangers Harriers Borough Villa Orient Argyle Vale Swifts Lions".split()
COLOURS = "red blue green yellow black white brown grey orange purple".split()
